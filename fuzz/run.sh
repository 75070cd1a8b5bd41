#!/usr/bin/env bash
# Builds one fuzz target and runs it, on stable Rust.
#
#   fuzz/run.sh TARGET [SECONDS] [LIBFUZZER-OPTION...]   fuzz/run.sh wire_header 60
#   fuzz/run.sh --list                                   the targets
#   fuzz/run.sh --build                                  builds all targets, and runs none
#   fuzz/run.sh TARGET 0 artifacts/TARGET/FILE           runs one input again
#
# Inputs that reach new code are kept in fuzz/corpus/TARGET. An input that fails is kept in
# fuzz/artifacts/TARGET, and the exit code is then not 0.
#
# Coverage comes from the compiler pass that cargo-fuzz uses too. The address sanitizer is not used:
# it needs a nightly compiler, and the fuzzed crates have no unsafe code.
set -euo pipefail
cd "$(dirname "$0")"

if [[ "${1:---help}" == --help ]]; then
    sed -n '2,/^set/s/^# \{0,1\}//p' "$(basename "$0")"
    exit 2
fi
if [[ "$1" == --list ]]; then
    sed -n '/^\[\[bin\]\]/,/^path/s/^name = "\(.*\)"/\1/p' Cargo.toml
    exit 0
fi

passes=(
    -Cpasses=sancov-module
    -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares
    --cfg fuzzing
)
# With an explicit --target, the flags do not apply to build scripts and macros, which have no
# fuzzer to report their coverage to.
host=$(rustc -vV | sed -n 's/^host: //p')
target_dir=${CARGO_TARGET_DIR:-$PWD/target}
build() {
    RUSTFLAGS="${passes[*]}" cargo build --locked --release --target "$host" \
        --target-dir "$target_dir" "$@"
}

if [[ "$1" == --build ]]; then
    build --bins
    exit 0
fi

target=$1
seconds=${2:-60}
shift $(($# > 1 ? 2 : 1))
build --bin "$target"

binary=$target_dir/$host/release/$target
artifacts=artifacts/$target/
mkdir -p "corpus/$target" "$artifacts"
if (($# > 0)) && [[ -f "$1" ]]; then
    exec "$binary" "$@"
fi
# The value profile rewards comparisons that come closer. Without it, the fuzzer hardly ever finds
# the values of short fields, which the table of recent comparisons does not contain.
exec "$binary" -max_total_time="$seconds" -artifact_prefix="$artifacts" -use_value_profile=1 \
    "$@" "corpus/$target"
