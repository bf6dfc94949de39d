#!/bin/bash
# install.sh install|uninstall PREFIX: puts what `make native` or `make build` built below PREFIX, or takes away what this
# puts there. $DESTDIR stands in front, for packages. What arm64 guests need is installed if it was built.
#
# The command finds the rest in PREFIX/lib/needless (crates/runner/src/locate.rs).
set -euo pipefail

prefix=${DESTDIR:-}$2
built=${CARGO_TARGET_DIR:-target}/release
needless=$built/needless
bash_completions=$prefix/share/bash-completion/completions
zsh_completions=$prefix/share/zsh/site-functions
fish_completions=$prefix/share/fish/vendor_completions.d
man=$prefix/share/man/man1

case $1 in
install)
    for file in needless needless-runner; do
        [ -x "$built/$file" ] || {
            echo "$built/$file is missing: run \`make native\` first" >&2
            exit 1
        }
    done
    install -d "$prefix/bin" "$prefix/lib/needless" "$man" "$bash_completions" "$zsh_completions" "$fish_completions"
    install -m 755 "$needless" "$prefix/bin/needless"
    for file in needless-runner needless-runner-arm64 libneedless_qemu_plugin.so; do
        [ ! -e "$built/$file" ] || install -m 755 "$built/$file" "$prefix/lib/needless/$file"
    done
    "$needless" man "$man"
    "$needless" completions bash >"$bash_completions/needless"
    "$needless" completions zsh >"$zsh_completions/_needless"
    "$needless" completions fish >"$fish_completions/needless.fish"
    ;;
uninstall)
    rm -f "$prefix/bin/needless" "$man/needless.1" "$man"/needless-*.1 "$bash_completions/needless" \
        "$zsh_completions/_needless" "$fish_completions/needless.fish"
    rm -f "$prefix"/lib/needless/{needless-runner,needless-runner-arm64,libneedless_qemu_plugin.so}
    [ ! -d "$prefix/lib/needless" ] || rmdir "$prefix/lib/needless"
    ;;
*)
    echo "usage: install.sh install|uninstall PREFIX" >&2
    exit 2
    ;;
esac
