// The readers call no op, so that none is built with the fuzzers.
namespace sinter {
class OpRegistry;
}
namespace sinter::ops {
void register_builtin_ops(OpRegistry&);
void register_builtin_ops(OpRegistry&) {}
}  // namespace sinter::ops
