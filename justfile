# `just check` while you work. `just check-full` before a change lands: it needs root and the tools
# that `.ci/run` installs.

# Optional parts, whose build needs protoc and the definitions of its library.
etcd := "--features carom-cli/etcd,carom-registry/etcd"

# Print the recipes.
default:
    @just --list

# Fast checks without root: format, lints, unit tests.
check: format
    cargo clippy --locked --workspace --all-targets -- -D warnings
    cargo test --locked --workspace --lib --bins

# Run every automated check.
check-full:
    #!/usr/bin/env bash
    set -euo pipefail
    for step in format lints doc licenses msrv fuzz instructions build scenarios papers test; do
        printf '\n== %s\n' "$step"
        SECONDS=0
        just "$step"
        echo "== $step: passed after $SECONDS s"
    done

# Check the format of all sources.
format:
    cargo fmt --all -- --check
    cargo fmt --manifest-path fuzz/Cargo.toml -- --check

# Lint everything, with and without the optional parts.
lints:
    cargo clippy --locked --workspace --all-targets {{etcd}} -- -D warnings
    cargo clippy --locked -p carom -p carom-registry -- -D warnings

# Build the API documentation.
doc $RUSTDOCFLAGS="-D warnings":
    # The binary of carom-cli has the name of the library: its pages would replace the library's.
    cargo doc --locked --workspace --no-deps --exclude carom-cli --exclude carom-tidy \
        --features carom-registry/etcd

# Check licenses, bans and sources of the dependencies.
licenses:
    cargo deny check licenses bans sources

# Check the minimum supported Rust version.
msrv:
    .ci/msrv

# Run each fuzz target for some seconds, as many at a time as there are processors.
fuzz seconds="10":
    .ci/fuzz {{seconds}}

# Count the instructions of the hot paths and compare them with their limits.
instructions:
    cargo bench --locked --workspace --bench instructions -- --parallel=auto

# Build all tests.
build:
    cargo test --locked --workspace {{etcd}} --no-run

# Play random scenarios of all engines in the simulator, with the command of the tests.
scenarios seeds="400":
    .ci/scenarios {{seeds}}

# Repeat some of the papers' evaluations, with the command of the tests.
papers:
    .ci/papers

# Run all tests.
test:
    cargo test --locked --workspace {{etcd}}
