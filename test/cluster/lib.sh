# Shared by up, down, enter and test: where things are, and how processes are started, named and ended.
# shellcheck shell=bash
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dir=${SANDMESH_CLUSTER_DIR:-/run/sandmesh-cluster}
netns=${SANDMESH_CLUSTER_NETNS:-sandmesh-cluster}
# Addresses that exist only inside the network namespace.
node_ip=10.90.0.1
pod_cidr=10.91.0.0/16
service_cidr=10.92.0.0/16
kubernetes_ip=10.92.0.1

say() { printf 'cluster: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
# Not `ip netns exec`: it remounts /sys and hides the cgroup mounts from kubelet.
inside() { nsenter --net="/run/netns/$netns" -- "$@"; }

# foreign: whether $KUBECONFIG names a cluster for the tests, which is not ours to bring up, to freeze or to take down.
foreign() { [ -n "${KUBECONFIG:-}" ]; }

# on_foreign WHAT…: says on whose cluster the tests run, and what they make there, a line each; then finds out what it has.
on_foreign() {
  local context server
  command -v kubectl > /dev/null || die 'needs kubectl for the cluster of $KUBECONFIG'
  context=$(kubectl config current-context) || die "\$KUBECONFIG ($KUBECONFIG) has no current context"
  server=$(kubectl config view --minify -o 'jsonpath={.clusters[0].cluster.server}')
  say "the tests run on the cluster of \$KUBECONFIG: context $context, $server. On it they make, and remove:"
  printf '  - %s\n' "$@" >&2
  kubectl --request-timeout=20s get --raw /readyz > /dev/null || die "$server does not answer, or not to this user"
  export SANDMESH_CLUSTER_FOREIGN=true SANDMESH_CLUSTER_KWOK=false
  if [ -n "$(kubectl get nodes -l type=kwok -o name)" ]; then SANDMESH_CLUSTER_KWOK=true; fi
}

start_of() { # PID: when it began, so that another process with its number later is not taken for it
  # Nothing for a zombie: it is gone, and its parent has not looked yet.
  sed -E 's/.*\) //; /^[ZX]/d' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20
}

# start NAME COMMAND…: inside the namespace, in a session of its own, with its log and nothing else open that the caller
# has (a lock of the caller's would be held for as long as the cluster is up); remembered as NAME.
start() {
  local name=$1 fd; shift
  (
    for fd in /proc/"$BASHPID"/fd/*; do
      fd=${fd##*/}
      if [ "$fd" -gt 2 ]; then eval "exec $fd>&-"; fi
    done
    exec setsid nsenter --net="/run/netns/$netns" -- "$@" > "$dir/log/$name.log" 2>&1 < /dev/null
  ) &
  local pid=$!
  printf '%s %s\n' "$pid" "$(start_of "$pid")" > "$dir/pids/$name"
}

alive() { # NAME
  local pid began
  read -r pid began < "$dir/pids/$1" 2>/dev/null || return 1
  [ -n "$began" ] && [ "$(start_of "$pid")" = "$began" ]
}

# whole: everything that was started is alive. After the machine has stopped the folder is there and nothing else is.
whole() {
  local pids=("$dir"/pids/*) file
  [ -e "$dir/kubeconfig" ] && [ -e "${pids[0]}" ] || return 1
  for file in "${pids[@]}"; do alive "${file##*/}" || return 1; done
}

# one_at_a_time: waits until no other up or down of a cluster in the same folder is under way. On a folder that is there
# anyway, so that no lock is left behind.
one_at_a_time() {
  [ -z "${SANDMESH_CLUSTER_LOCKED:-}" ] || return 0
  exec 8< "$(dirname "$dir")"
  flock -w 900 8 || die 'gave up waiting for another up or down'
  export SANDMESH_CLUSTER_LOCKED=1
}

# stop NAME: SIGTERM, after ten seconds SIGKILL; returns when it is gone.
stop() {
  local name=$1 pid i
  [ -e "$dir/pids/$name" ] || return 0
  read -r pid _ < "$dir/pids/$name"
  if alive "$name"; then kill -TERM "$pid" 2>/dev/null; fi
  for ((i = 0; i < 200; i++)); do
    alive "$name" || break
    [ "$i" = 100 ] && kill -KILL "$pid" 2>/dev/null
    sleep 0.1
  done
  rm -f "$dir/pids/$name"
}

# until_true SECONDS WHAT COMMAND…: waits for a condition, or dies with the log's last lines.
until_true() {
  local limit=$1 what=$2; shift 2
  local deadline=$((SECONDS + limit))
  until "$@" > /dev/null 2>&1; do
    [ "$SECONDS" -lt "$deadline" ] || { tail -n 5 "$dir"/log/*.log >&2; die "gave up waiting for $what after $limit s"; }
    sleep 0.2
  done
}
