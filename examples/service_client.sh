#!/bin/sh
# The same as service_client.py with curl: send images, adapt to them, accept the result.
#
#     usfda serve examples-out/vendor.usfda &
#     sh examples/service_client.sh http://127.0.0.1:8000 examples-out/uci/?/*[05].png
#
# Where the service wants a token: set USFDA_TOKEN.
set -eu
server=$1
shift

call() { curl --silent --show-error --fail ${USFDA_TOKEN:+-H "Authorization: Bearer $USFDA_TOKEN"} "$@"; }

# Every image is a field "files"; the loop puts -F files=@ before each name.
for file in "$@"; do
    set -- "$@" -F "files=@$file"
    shift
done

labels() { call "$@" "$server/predict" | grep -o '"label":"[^"]*"' | sort | uniq -c; }

echo before:
labels "$@"

call -X POST "$server/adapt" > /dev/null
while call "$server/adapt" | grep -q '"state":"running"'; do sleep 0.2; done

call -X POST "$server/adapt/accept" > /dev/null # fails, and ends the script, where the adaptation did
echo after:
labels "$@"
