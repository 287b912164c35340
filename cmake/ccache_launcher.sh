#!/bin/sh
# ccache_launcher.sh <ccache> <compiler> <arguments>...: runs the compiler through ccache so that files with precompiled
# headers are cached too, and found again from other build folders.
ccache=$1
shift
# What ccache must overlook for it. https://ccache.dev/manual/latest.html, "Precompiled headers"
export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
# A precompiled header that is made anew must not depend on the one before, which ccache would take for its input. And it
# must be made anew when only a comment of a header has changed: the compiler tells a header that it has read already by
# its contents. So it is looked up by its files, never by what the preprocessor makes of them.
previous=
for argument; do
  case "$previous $argument" in
    "-o "*.gch)
      rm -f "$argument"
      export CCACHE_DEPEND=1
      ;;
  esac
  previous=$argument
done
exec "$ccache" "$@"
