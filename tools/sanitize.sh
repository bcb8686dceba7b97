#!/usr/bin/env bash
# Runs the tests marked `sanitize` under compute-sanitizer's four tools, with
# PyTorch's caching allocator off, so that an access past a tensor is an access past an allocation.
# memcheck, racecheck and synccheck look at our kernels alone. initcheck looks at all: it knows only
# the stores of kernels that it instruments, and the inputs come from PyTorch's.
# API errors are left out: other packages probe the driver on import, and our launches are checked.
# Environment: PYTHON (python3), OUT (build/sanitizer: where the logs go).
set -u
command -v compute-sanitizer >/dev/null || {
  echo "tools/sanitize.sh: compute-sanitizer is not on the PATH; it comes with the CUDA toolkit" >&2
  exit 127
}
python=${PYTHON:-python3}
out=${OUT:-build/sanitizer}
mkdir -p "$out"
export PYTORCH_NO_CUDA_MEMORY_CACHING=1

failed=0
for tool in memcheck racecheck synccheck initcheck; do
  log="$out/$tool.log"
  filter=(--kernel-name kernel_substring=memops)
  [ "$tool" != initcheck ] || filter=()
  compute-sanitizer --tool "$tool" "${filter[@]}" --error-exitcode 9 --report-api-errors no \
    --print-limit 20 \
    "$python" -m pytest -q -p no:cacheprovider -m sanitize "$@" >"$log" 2>&1
  status=$?
  printf '%-10s exit %d  %s\n' "$tool" "$status" "$(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$log" | tail -1)"
  grep -E '[0-9]+ (passed|failed)' "$log" | tail -1
  [ "$status" -eq 0 ] || failed=1
done
exit $failed
