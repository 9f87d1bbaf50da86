#!/bin/sh
# Puts Weir below a prefix, or removes it from there.
#
#   ./install.sh [--prefix DIR] [--destdir DIR]
#   ./install.sh --uninstall [--prefix DIR] [--destdir DIR]
#
# The prefix is /usr/local if none is named. --destdir is a directory that stands for /.
# PREFIX/share/weir/installed-files lists what was put down, as `cargo xtask install` does; either removes what is listed.
set -eu
umask 022

fail() {
    echo "install.sh: $*" >&2
    exit 1
}

prefix=/usr/local destdir='' uninstall=''
while [ $# -gt 0 ]; do
    case $1 in
    --uninstall) uninstall=yes ;;
    --prefix | --destdir)
        [ $# -ge 2 ] || fail "$1 needs a directory"
        if [ "$1" = --prefix ]; then prefix=${2%/}; else destdir=${2%/}; fi
        shift
        ;;
    *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" && exit 2 ;;
    esac
    shift
done
case $prefix/ in
*[!A-Za-z0-9/._+-]* | */../* | */./* | *//*) fail "the prefix $prefix is not a plain path" ;;
/?*) ;;
*) fail "the prefix '$prefix' is not absolute" ;;
esac
case $destdir in
'' | /*) ;;
*) destdir=$PWD/$destdir ;;
esac
list=$prefix/share/weir/installed-files
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
trap 'exit 1' HUP INT TERM
touch "$work/files" "$work/old" "$work/made"

# What is listed: directories end with a slash, and may be above the prefix. All else is below it.
if [ -f "$destdir$list" ]; then
    cp -- "$destdir$list" "$work/old"
    # The last line counts without its end, too.
    while IFS= read -r path || [ "$path" ]; do
        case $path in
        */../* | */./* | *//* | */..) fail "$destdir$list is damaged: $path" ;;
        "$prefix"/*) continue ;;
        */) case $prefix/ in "$path"*) continue ;; esac ;;
        esac
        fail "$destdir$list is damaged: $path is not of $prefix"
    done <"$work/old"
elif [ "$uninstall" ]; then
    fail "nothing is installed there: no $destdir$list"
fi

if [ "$uninstall" ]; then
    # The other name is of an installation that was killed.
    { grep -v '/$' "$work/old" || true; echo "$list"; } | while IFS= read -r path; do
        rm -f -- "$destdir$path" "$destdir$path.weir-new"
    done
    # A directory that is not empty is used by others.
    { grep '/$' "$work/old" || true; } | LC_ALL=C sort -r |
        while IFS= read -r path; do rmdir -- "$destdir$path" 2>/dev/null || true; done
    echo "Weir is removed from $destdir$prefix"
    exit
fi

cd "$(dirname "$0")"
sha256sum -c SHA256SUMS >"$work/sums" 2>&1 || {
    grep -v ': OK$' "$work/sums" >&2 || true
    fail "the files here are not those that were packed"
}

make() { # DIRECTORY, with those above it
    [ ! -d "$destdir$1/" ] || return 0
    [ -z "$1" ] || make "${1%/*}"
    if [ -z "$1" ]; then mkdir -p -- "$destdir"; else mkdir -- "$destdir$1"; fi || fail "cannot make $destdir$1"
    echo "$1/" >>"$work/made"
}

# Where anything cannot be written nothing is changed.
undo() {
    { cat "$work/files"; echo "$list"; } | while IFS= read -r path; do rm -f -- "$destdir$path.weir-new"; done
    LC_ALL=C sort -r "$work/made" | while IFS= read -r path; do rmdir -- "$destdir$path" 2>/dev/null || true; done
    rm -rf -- "$work"
}
trap undo EXIT

find bin include lib share ! -type d | LC_ALL=C sort >"$work/packed"
while IFS= read -r file; do
    to=$destdir$prefix/$file
    [ ! -d "$to" ] || fail "cannot write $to: it is a directory"
    directory=$prefix/$file
    make "${directory%/*}"
    echo "$prefix/$file" >>"$work/files"
    rm -f -- "$to.weir-new" # of a run that was killed
    case $file in
    */weir.pc) sed "s|^prefix=.*|prefix=$prefix|" "$file" >"$to.weir-new" ;;
    *) cp -P -- "$file" "$to.weir-new" ;;
    esac
    case $file in
    bin/*) chmod 755 "$to.weir-new" ;;
    *) [ -h "$file" ] || chmod 644 "$to.weir-new" ;;
    esac
done <"$work/packed"
[ ! -d "$destdir$list" ] || fail "cannot write $destdir$list: it is a directory"
make "${list%/*}"
{ grep '/$' "$work/old" || true; cat "$work/made"; } | LC_ALL=C sort -u >"$work/directories"
cat "$work/files" "$work/directories" >"$work/list"
{ { grep -v '/$' "$work/old" || true; cat "$work/files"; } | LC_ALL=C sort -u; cat "$work/directories"; } >"$work/both"
put_list() { # FILE
    cp -- "$1" "$destdir$list.weir-new"
    mv -f -- "$destdir$list.weir-new" "$destdir$list"
}

# What was there and what comes is listed until all is done: an installation that ends before can be removed.
put_list "$work/both"
# A rename: a program that runs keeps the library that it has mapped.
while IFS= read -r path; do mv -f -- "$destdir$path.weir-new" "$destdir$path"; done <"$work/files"
# What an older version put down, and this one has not.
{ grep -v '/$' "$work/old" || true; } | while IFS= read -r path; do
    grep -qxF -- "$path" "$work/files" || rm -f -- "$destdir$path"
done
put_list "$work/list"
trap 'rm -rf -- "$work"' EXIT
echo "Weir is installed in $destdir$prefix"
[ "$destdir" ] || echo "programs that are linked with -lweir may need ldconfig now, as root"
