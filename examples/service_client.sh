#!/bin/sh
# The same as service_client.py with curl: send images, adapt to them, accept the result.
#
#     usfda serve examples-out/vendor.usfda &
#     sh examples/service_client.sh http://127.0.0.1:8000 examples-out/uci/?/*[05].png
#
# Where the service wants a token: set USFDA_TOKEN.
set -eu
[ $# -ge 2 ] || { echo "usage: sh $0 ADDRESS IMAGE..." >&2; exit 1; }
server=${1%/}
shift

# Leaves what the service answers in $answer; an error ends the script with what the service says of it.
call() {
    answer=$(curl --silent --show-error --fail-with-body ${USFDA_TOKEN:+-H "Authorization: Bearer $USFDA_TOKEN"} "$@") ||
        { printf '%s\n' "$answer" >&2; exit 1; }
}

# Every image is a field "files"; the loop puts -F files=@ before each name.
for file in "$@"; do
    set -- "$@" -F "files=@$file"
    shift
done

labels() {
    call "$@" "$server/predict"
    printf '%s' "$answer" | grep -o '"label":"[^"]*"' | sort | uniq -c
}

echo before:
labels "$@"

call -X POST "$server/adapt"
while call "$server/adapt"; printf '%s' "$answer" | grep -q '"state":"running"'; do sleep 0.2; done

call -X POST "$server/adapt/accept" # an error where the adaptation failed
echo after:
labels "$@"
