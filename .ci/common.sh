# What the three levels of the gate share: .ci/quick, .ci/run and .ci/nightly source this file in bash.
#
# A stage is a function. Its output is its own, and its failure ends the level with its name. The test runners' closing
# lines are left in the output.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TERM_COLOR=never RUST_BACKTRACE=1 DEBIAN_FRONTEND=noninteractive

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
library=$target/release/libweir.so
# What the stages of this run did: `.ci/untested` and `.ci/skipped` read it.
records=$target/gate
stage='' began=$SECONDS
# The processes that work beside the tests, each with all that it starts.
asides=()

finish() {
    local code=$? aside
    for aside in "${asides[@]}"; do kill -- "-$aside" 2>/dev/null || true; done
    case $code in 0 | 77) return ;; esac # 77: it said what is missing
    # Which tests, and why: the first line of each panic and what stands below it.
    [ ! -e "$records/ran" ] || grep -aE '^test .* FAILED$|^error: test failed' "$records/ran" || true
    [ ! -e "$records/ran" ] || sed -n '/^failures:$/,/^failures:$/p' "$records/ran" | grep -avE '^ +[0-9]+: |^ +at ' | tail -60 || true
    echo "FAILED: stage '$stage' (exit code $code, $((SECONDS - began)) s in all)"
}
trap finish EXIT

# Runs one stage. Nothing waits for input.
run() { # NAME COMMAND...
    stage=$1
    shift
    echo "=== $stage"
    # What it took of the CPUs is the same on a busy machine.
    local TIMEFORMAT="--- $stage: %0R s, of the CPUs %0U + %0S s"
    time "$@" </dev/null
}

fresh_records() {
    rm -rf "$records"
    mkdir -p "$records/aside"
}

# ---- what runs beside the tests -------------------------------------------------------------------------------

# Tests wait more than they compute. What only builds runs meanwhile, one after the other, in the kernel's idle class: it
# gets what the tests leave, and takes nothing from them. Its output is shown, and its failure counts, where its stage
# stands, by `collect`.
begin_aside() { # FUNCTION...: may be called again, and then works beside the first as well
    local name since
    for name in "$@"; do mkdir "$records/aside/$name"; done
    set -m # a process group of its own, which `finish` can end as a whole
    (
        trap - EXIT
        set +e
        chrt --idle --pid 0 "$BASHPID" 2>/dev/null || true # it may be refused: then it takes its share
        for name in "$@"; do
            since=$SECONDS
            (
                set -e
                # Its own: two that write at a time would mix their lines.
                records=$records/aside/$name
                "$name"
            ) </dev/null >"$records/aside/$name.log" 2>&1
            echo $? >"$records/aside/$name/code"
            echo "beside the tests: $((SECONDS - since)) s" >>"$records/aside/$name.log"
            mv "$records/aside/$name/code" "$records/aside/$name.code" # as a whole: `collect` looks for it
        done
    ) &
    asides+=($!)
    for name in "$@"; do echo "$!" >"$records/aside/$name/by"; done
    set +m
}

collect() { # FUNCTION: waits until it is done, then shows what it said
    local by
    by=$(cat "$records/aside/$1/by")
    # Nothing is tested meanwhile: it gets the CPUs.
    chrt --other --all-tasks --pid 0 "$by" 2>/dev/null || true
    until [ -e "$records/aside/$1.code" ]; do
        kill -0 "$by" 2>/dev/null || [ -e "$records/aside/$1.code" ] || return 1 # it was killed
        sleep 0.2
    done
    cat "$records/aside/$1.log"
    local kind
    for kind in built ran; do
        [ ! -e "$records/aside/$1/$kind" ] || cat "$records/aside/$1/$kind" >>"$records/$kind"
    done
    return "$(cat "$records/aside/$1.code")"
}

# ---- what is installed ----------------------------------------------------------------------------------------

# Installs the packages of which a command is missing: pairs PACKAGE:COMMAND. A command that is a path with `*` is looked
# for by name, and one with blanks is run.
install() { # PACKAGE:COMMAND...
    local pair command missing=()
    for pair in "$@"; do
        command=${pair#*:}
        case $command in
        *' '*) (eval "$command") >/dev/null 2>&1 || missing+=("${pair%%:*}") ;;
        /*) compgen -G "$command" >/dev/null || missing+=("${pair%%:*}") ;;
        *) command -v "$command" >/dev/null || missing+=("${pair%%:*}") ;;
        esac
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    echo "installing ${missing[*]}"
    if [ "$(id -u)" != 0 ]; then
        echo "this needs root; install them by hand, then run this again" >&2
        return 1
    fi
    # Debian starts a service when it is installed: not here, where the tests start their own.
    local policy=/usr/sbin/policy-rc.d made=''
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        made=yes
    fi
    local code=0 log
    log=$(mktemp)
    { apt-get update -q && apt-get install -q -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 || code=$?
    [ -z "$made" ] || rm -f "$policy"
    [ "$code" -eq 0 ] || tail -n 20 "$log"
    rm -f "$log"
    return "$code"
}

# ---- stages that more than one level has ----------------------------------------------------------------------

formatted() { # all four workspaces
    cargo fmt --check
    (cd lab && cargo fmt --check)
    (cd fuzz && cargo fmt --check)
    (cd fleet && cargo fmt --check)
}

tests() { # arguments of `cargo test`, recorded
    cargo test --locked --no-run --message-format=json-render-diagnostics "$@" >>"$records/built"
    cargo test --locked --no-fail-fast "$@" 2>&1 | tee -a "$records/ran"
}

features() { # each package that has features, with all of them: the tests that ask for one
    local package needing
    for package in $(.ci/untested --features); do
        mapfile -t needing < <(.ci/untested --list test | awk -v p="$package" '$1 == p && $3 { print "--test=" $2 }')
        tests -p "$package" --all-features "${needing[@]}"
    done
}

examples() { # PROFILE: each example, as it was built, runs to its end
    local name
    while read -r _ name _; do
        echo "$name"
        timeout 600 "$target/$1/examples/$name" </dev/null
    done < <(.ci/untested --list example)
}

first_command() { # README's first, as it stands: it builds the library and the command
    cargo run --release -- run -- sh -c 'echo ran under Weir' | tee "$records/first"
    grep -qx 'ran under Weir' "$records/first"
}

# Examples are run by the tests, here links and their targets. What lints have checked of dependencies is not checked again.
documentation() ( # arguments of `cargo doc`
    export RUSTDOCFLAGS="-D warnings" CARGO_PROFILE_DEV_PANIC=unwind
    cargo doc --locked --no-deps --quiet "$@"
)

in_laboratory() { # COMMAND...: in its workspace, with the product's target directory
    (cd lab && CARGO_TARGET_DIR=$target "$@")
}

archive() { # TRIPLE: libweir.a for static programs, as `cargo xtask install` builds it
    RUSTFLAGS="-C target-feature=+crt-static" cargo rustc --locked --quiet --release --target "$1" -p weir-malloc --lib --crate-type staticlib
}

musl_library() { # libweir.so for programs of musl's, in a target directory of its own: target/musl-shared
    CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_LINKER=musl-gcc RUSTFLAGS="-C target-feature=-crt-static" \
        cargo build --locked --quiet --release --target x86_64-unknown-linux-musl -p weir-malloc --target-dir "$target/musl-shared"
}

build() { # what is installed, as it is
    first_command
    # Beside the command it has that one's dependencies, as `cargo xtask install` builds it.
    cargo build --locked --release -p weir-cli -p weir-nbd
    archive "$(rustc --print host-tuple)"
}
