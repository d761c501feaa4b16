#!/bin/sh
# A copy of a broker's data folder while it runs: backup.sh DATA COPY [URL]
#
# The same COPY may be used again and again: only what is new is copied, and what the broker has removed is removed
# there too. docs/OPERATIONS.md says why in this order. Needs `mqks`, which finds URL, token
# and CA in MQKS_URL, MQKS_TOKEN and MQKS_CA; a token needs --history='**'.
set -eu
umask 027
[ $# -ge 2 ] || { echo "backup.sh DATA COPY [URL]" >&2; exit 2; }
data=$1 copy=$2
[ $# -lt 3 ] || export MQKS_URL="$3"
tries=30  # one a second

fail() { echo "backup.sh: $*" >&2; exit 1; }
hold() {  # so many seconds, in which the broker removes nothing that we have still to copy
    mqks journal hold backup --for="$1"
}
names() { ls "$data/progress" "$data/index"; }
stamp() { stat -c '%s %Y' "$1" 2>/dev/null; }  # one that was copied to the end has the size and the time of its original

for part in journal progress index; do
    [ -r "$data/$part" ] && [ -x "$data/$part" ] || fail "$data/$part is not there, or may not be read by this user"
done
mkdir -p "$copy/journal"
newest=$( (ls "$data/journal"; ls "$copy/journal") | sort | tail -n 1)
[ -e "$data/journal/$newest" ] || fail "$copy is ahead of $data, so it is of another broker: give an empty folder"

hold 86400 || fail "the broker does not hold its journal"
trap 'hold 0 || echo "backup.sh: the broker holds its journal for a day" >&2' EXIT
trap 'exit 1' HUP INT TERM

# 1. What became of messages. If the broker makes a checkpoint meanwhile, once more.
until
    before=$(names)
    rm -rf "$copy/progress" "$copy/index"
    cp -a "$data/progress" "$data/index" "$copy" && [ "$before" = "$(names)" ]
do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || fail "$data/progress could not be copied"
    sleep 1
done

# 2. The messages. Sealed segments never change; the one that was the last may have grown.
for segment in $(ls "$data/journal"); do
    [ "$(stamp "$data/journal/$segment")" = "$(stamp "$copy/journal/$segment")" ] ||
        cp -a "$data/journal/$segment" "$copy/journal"
done
for segment in $(ls "$copy/journal"); do
    [ -e "$data/journal/$segment" ] || rm "$copy/journal/$segment"
done
for file in lost empty; do
    [ ! -e "$data/$file" ] || cp -a "$data/$file" "$copy"
done

sync
mqks journal verify "$copy" || fail "the copy is not good: make another one, in an empty folder"
