# The webhook outside of the cluster that it serves, with the token of its own account: so its rights are those of the chart. Kubernetes
# calls it by an URL. What is sourced here also waits, compares, and cleans up; the chart or the kustomize base is to be there.
# shellcheck shell=bash
place=$(mktemp -d)
running=''

finish() {
    local code=$?
    [ -z "$running" ] || kill "$running" 2>/dev/null || true
    [ "$code" -eq 0 ] || { echo "FAILED; what the webhook said:" && cat "$place/webhook.log"; } 2>/dev/null || true
    rm -rf -- "$place"
    exit "$code"
}
trap finish EXIT

version() { # of the API server: Helm does not ask it
    kubectl get --raw /version | python3 -c 'import json, sys; print(json.load(sys.stdin)["gitVersion"])'
}

say() { echo "=== $*"; }

until_() { # SECONDS COMMAND...
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || { echo "in vain: $*" && return 1; }
        sleep 0.2
    done
}

is() { # EXPECTED ACTUAL
    [ "$1" = "$2" ] || { printf 'expected: %s\nthere is: %s\n' "$1" "$2" && return 1; }
}

account() { # NAME: a KUBECONFIG of this account's
    local token
    token=$(kubectl create token "$1" --namespace weir-system)
    kubectl config view --raw --minify --flatten --output json | python3 -c '
import json, sys
config = json.load(sys.stdin)
config["users"][0]["user"] = {"token": sys.argv[1]}
json.dump(config, sys.stdout)' "$token" >"$place/$1.kubeconfig"
    echo "$place/$1.kubeconfig"
}

webhook_here() { # PROGRAM: until this script ends; $observe is the port that says how it is
    local port
    read -r port observe < <(python3 -c '
import socket
held = [socket.socket() for _ in range(2)]
for one in held:
    one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in held))')
    KUBECONFIG=$(account weir-webhook) "$1" --image registry.example/weir-library:0.1.0 --listen "127.0.0.1:$port" --observe "127.0.0.1:$observe" \
        --secret weir-webhook-certificate --service weir-webhook --name 127.0.0.1 --namespace weir-system --drain 0 2>"$place/webhook.log" &
    running=$!
    # The machine may be busy.
    kubectl get mutatingwebhookconfiguration weir-webhook --output json | python3 -c '
import json, sys
change = []
for nth, webhook in enumerate(json.load(sys.stdin)["webhooks"]):
    client = {"url": sys.argv[1] + webhook["clientConfig"]["service"]["path"]}
    change += [{"op": "replace", "path": f"/webhooks/{nth}/clientConfig", "value": client},
               {"op": "replace", "path": f"/webhooks/{nth}/timeoutSeconds", "value": 10}]
json.dump(change, sys.stdout)' "https://127.0.0.1:$port" >"$place/change.json"
    kubectl patch mutatingwebhookconfiguration weir-webhook --type json --patch-file "$place/change.json"
    until_ 120 curl --silent --fail "http://127.0.0.1:$observe/readyz"
    until_ 120 webhook_is_known # it looks once a minute
}

webhook_is_known() {
    [ -n "$(kubectl get mutatingwebhookconfiguration weir-webhook --output jsonpath='{.webhooks[0].clientConfig.caBundle}')" ]
}
