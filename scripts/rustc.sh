#!/usr/bin/env bash
# rustc.sh RUSTC ARGUMENT…: rustc as cargo calls it for the crates of this workspace (.cargo/config.toml).
#
# The runner is static, so that it runs without any file of the system it runs on, and at a fixed address, so that its
# heap can grow on every kernel. Cargo has no flags for one program alone but in a call of its own, and in that call all
# that the runner depends on would be compiled once more.
#
# Unit tests of the largest crates compile all of the crate once more and run for a second: cargo cannot say that the
# crate is to be optimised and its unit tests are not. What they call of other crates is optimised.
#
# bash, since others drop variables whose names are none of a shell's (CARGO_BIN_EXE_needless-runner).
case " $* " in
*" --crate-name needless_runner "*" --crate-type bin "*) exec "$@" -C target-feature=+crt-static -C relocation-model=static ;;
*" --crate-name needless_model "*" --test "* | *" --crate-name needless_check "*" --test "* | \
    *" --crate-name needless_runner "*" --test "* | *" --crate-name needless_watch "*" --test "*)
    exec "$@" -C opt-level=0
    ;;
esac
exec "$@"
