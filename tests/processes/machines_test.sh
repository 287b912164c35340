#!/usr/bin/env bash
# Ranks on several machines: network namespaces of this one, joined by a router that can be a firewall. Ends with 77, a
# skip, where the system makes no namespaces. Usage: machines_test.sh <processes_worker> <folder>
set -euo pipefail
worker=$1 work=$2
rm -rf "$work"
mkdir -p "$work"
cd "$work"
name=sn$$

skip() { echo "SKIPPED: $*"; exit 77; }
fail() { echo "FAILED (${FUNCNAME[1]}): $*"; for f in err*; do sed "s/^/  $f: /" "$f" | tail -n 12; done; exit 1; }
clean() {
  local space pids
  for space in "$name"r "$name"a "$name"b; do
    pids=$(ip netns pids $space 2>/dev/null || true)
    [ -z "$pids" ] || kill -KILL $pids 2>/dev/null || true
    ip netns del $space 2>/dev/null || true
  done
}
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
command -v ip >/dev/null || skip "ip (iproute2) is not here"
trap clean EXIT

# Two machines, a (10.87.1.1) and b (10.87.2.1), and the router r between them; with IPv6 where there is any.
make_machines() {
  local side n
  clean
  for side in r a b; do
    ip netns add "$name$side" && ip -n "$name$side" link set lo up || return 1
  done
  for side in a b; do
    n=$([ $side = a ] && echo 1 || echo 2)
    ip link add "${name}x" netns "$name$side" type veth peer name "to_$side" netns "${name}r" &&
      ip -n "$name$side" link set "${name}x" name eth0 || return 1
    ip -n "$name$side" addr add 10.87.$n.1/24 dev eth0
    ip -n "${name}r" addr add 10.87.$n.254/24 dev to_$side
    ip -n "$name$side" addr add fd87:$n::1/64 dev eth0 nodad 2>/dev/null || true
    ip -n "${name}r" addr add fd87:$n::fe/64 dev to_$side nodad 2>/dev/null || true
    ip -n "$name$side" link set eth0 up && ip -n "${name}r" link set to_$side up
    ip -n "$name$side" route add default via 10.87.$n.254
    ip -n "$name$side" -6 route add default via fd87:$n::fe 2>/dev/null || true
  done
  ip netns exec "${name}r" sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding' 2>/dev/null
}
make_machines 2>make.log || skip "no namespaces: $(tail -n 1 make.log)"
ip netns exec "${name}a" true || skip "namespaces cannot be entered"

# What the router lets through from one machine to the other: only TCP from and to these ports; the rest vanishes.
firewall() {
  local side ports=("$@") port
  ip -n "${name}r" rule flush && ip -n "${name}r" rule add pref 10 lookup local
  for port in "${ports[@]}"; do
    for side in sport dport; do ip -n "${name}r" rule add pref 20 ipproto tcp $side $port lookup main || return 1; done
  done
  ip -n "${name}r" rule add pref 30 ipproto tcp blackhole && ip -n "${name}r" rule add pref 40 lookup main
}
no_firewall() { ip -n "${name}r" rule flush; ip -n "${name}r" rule add pref 10 lookup local; ip -n "${name}r" rule add pref 40 lookup main; }

# rank <rank> <size> <machine> <hosts or -> <scene> [variable=value...]: starts a rank there, on a machine whose name is n1
# whichever it is, and whose table of hosts says so many words.
rank() {
  local rank=$1 size=$2 machine=$3 hosts=$4 scene=$5
  shift 5
  env RANK=$rank WORLD_SIZE=$size MASTER_PORT=29500 "$@" ip netns exec "$name$machine" unshare --mount --uts sh -c '
    echo "127.0.0.1 localhost" > hosts"$RANK"
    [ "$1" = - ] || echo "$1" >> hosts"$RANK"
    mount --bind hosts"$RANK" /etc/hosts && hostname n1 && exec timeout -s KILL 60 "$2" "$3"' sh "$hosts" "$worker" "$scene" >out"$rank" 2>err"$rank" &
  pids[$rank]=$!
}
# ended <expected code> <rank>...: waits for these.
ended() {
  local expected=$1 code each
  shift
  for each in "$@"; do
    code=0
    wait "${pids[$each]}" || code=$?
    [ "$code" = "$expected" ] || fail "rank $each ended with $code in place of $expected"
  done
}
complains() { grep -qE -- "$2" "err$1" || fail "rank $1 does not say: $2"; }
within() { [ $((SECONDS - $1)) -le "$2" ] || fail "took $((SECONDS - $1)) s"; }

# Debian's entry for a machine's own name is a loopback address; machines with the same name are several all the same.
names_of_hosts_are_no_addresses() {
  rank 0 3 a "127.0.1.1 n1" collectives MASTER_ADDR=n1
  rank 1 3 a "127.0.1.1 n1" collectives MASTER_ADDR=n1
  rank 2 3 b "10.87.1.1 n1" collectives MASTER_ADDR=n1
  ended 0 0 1 2
  rank 0 2 a - collectives MASTER_ADDR=10.87.1.1
  rank 1 2 b - collectives MASTER_ADDR=10.87.1.1
  ended 0 0 1
  rank 0 3 a - collectives MASTER_ADDR=10.87.1.1 SINTER_GLOO=off
  rank 1 3 b - collectives MASTER_ADDR=10.87.1.1 SINTER_GLOO=off
  rank 2 3 b - collectives MASTER_ADDR=10.87.1.1 SINTER_GLOO=off
  ended 0 0 1 2
}

ipv6_does_too() {
  if [ -z "$(ip -n "${name}a" -6 route get fd87:2::1 2>/dev/null)" ]; then
    echo "no IPv6 between namespaces: its part is left out"
    return
  fi
  rank 0 2 a - collectives MASTER_ADDR=fd87:1::1
  rank 1 2 b - collectives MASTER_ADDR=fd87:1::1
  ended 0 0 1
}

# Rank 0 listens where it was asked to and nowhere else.
rank_zero_listens_where_it_is_reached() {
  rank 0 2 a - late MASTER_ADDR=10.87.1.1
  for _ in $(seq 50); do
    [ -z "$(ip netns exec "${name}a" ss -Hltn 'sport = 29500')" ] || break
    sleep 0.05
  done
  ip netns exec "${name}a" ss -Hltn 'sport = 29500' | grep -q "10.87.1.1:29500" || fail "does not listen"
  [ "$(ip netns exec "${name}a" ss -Hltn 'sport = 29500' | wc -l)" = 1 ] || fail "listens elsewhere too"
  ended 3 0
}

interfaces_are_named() {
  local start=$SECONDS each
  rank 0 2 a - collectives MASTER_ADDR=10.87.1.1
  rank 1 2 b - collectives MASTER_ADDR=10.87.1.1 SINTER_INTERFACE=eth9
  ended 3 0
  ended 1 1
  for each in 0 1; do complains $each "SINTER_INTERFACE=eth9: there is no such interface that is up; this machine has eth0 \(10.87.2.1"; done
  for each in 0 1; do rank $each 2 $([ $each = 0 ] && echo a || echo b) - collectives MASTER_ADDR=10.87.1.1 SINTER_INTERFACE=lo; done
  for each in 0 1; do wait "${pids[$each]}" && fail "loopback joins two machines" || true; done
  for each in 0 1; do complains $each "SINTER_INTERFACE=lo: 127.0.0.1 is an address that no other machine reaches"; done
  within $start 8
  for each in 0 1; do rank $each 2 $([ $each = 0 ] && echo a || echo b) - collectives MASTER_ADDR=10.87.1.1 SINTER_INTERFACE=eth0; done
  ended 0 0 1
}

firewalls_are_named_and_ports_can_be_opened() {
  if ! firewall 29500 2>make.log; then
    echo "no rules for ports here: firewalls are left out ($(tail -n 1 make.log))"
    no_firewall
    return
  fi
  local start=$SECONDS each
  for each in 0 1; do rank $each 2 $([ $each = 0 ] && echo a || echo b) - collectives MASTER_ADDR=10.87.1.1; done
  ended 3 0 1
  within $start 20
  for each in 0 1; do
    complains $each "the ranks cannot be connected: rank [01] \(n1, process [0-9]+\) has no connection to rank [01] \(n1, process [0-9]+\) at 10.87.[12].1:[0-9]+ \(Connect timeout"
    complains $each "SINTER_PORTS"
  done
  firewall 29500 29600-29609
  for each in 0 1; do rank $each 2 $([ $each = 0 ] && echo a || echo b) - collectives MASTER_ADDR=10.87.1.1 SINTER_PORTS=29600-29609; done
  ended 0 0 1
  no_firewall
}

a_link_that_goes_down_is_named() {
  local start each
  for each in 0 1; do rank $each 2 $([ $each = 0 ] && echo a || echo b) - fault.none MASTER_ADDR=10.87.1.1; done
  sleep 2
  start=$SECONDS
  ip -n "${name}r" link set to_b down
  ended 3 0 1
  within $start 12
  complains 0 "rank 1 \(n1, process [0-9]+\) is lost: nothing was heard of it for 4 s"
  complains 1 "rank 0 \(n1, process [0-9]+\) is lost: nothing was heard of it for 4 s"
  ip -n "${name}r" link set to_b up
}

keys_are_asked_for() {
  rank 0 2 a - collectives MASTER_ADDR=10.87.1.1 SINTER_JOB_KEY=right
  rank 1 2 b - collectives MASTER_ADDR=10.87.1.1 SINTER_JOB_KEY=wrong
  ended 3 1
  complains 1 "does not know the job's key"
  rank 1 2 b - collectives MASTER_ADDR=10.87.1.1 SINTER_JOB_KEY=right
  ended 0 0 1
}

losses_are_survived() {
  if ! ip netns exec "${name}r" tc qdisc add dev to_a root netem loss 15% 2>make.log; then
    echo "no netem here: losses are left out"
    return
  fi
  for each in 0 1; do rank $each 2 $([ $each = 0 ] && echo a || echo b) - collectives MASTER_ADDR=10.87.1.1; done
  ended 0 0 1
  ip netns exec "${name}r" tc qdisc del dev to_a root
}

names_of_hosts_are_no_addresses
ipv6_does_too
rank_zero_listens_where_it_is_reached
interfaces_are_named
keys_are_asked_for
a_link_that_goes_down_is_named
firewalls_are_named_and_ports_can_be_opened
losses_are_survived
echo "all passed"
