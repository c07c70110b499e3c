#!/usr/bin/env bash
# Two hosts on one machine, for tests: network and host name are each host's own (namespaces), files
# are shared. No root is needed where a user may make namespaces.
#
#   two_hosts.sh run COMMAND...         COMMAND on node1, beside a node2; 77 if namespaces are refused
#   two_hosts.sh agent HOST COMMAND...  what Open MPI calls in place of ssh (plm_rsh_agent)
#
# A file `fail` in the working directory makes the other host disappear: `link` takes the network
# from between them, `kill` ends all that runs on node2 and leaves the network.
set -euo pipefail

inside() {
  hostname node1
  # Its first line says that its namespaces are there, and which process holds them.
  exec {ready}< <(exec unshare --net --uts -- sh -c 'hostname node2; echo $$; exec sleep infinity')
  read -r -u "$ready" node2
  export TANDEM_NODE2=$node2
  printf '127.0.0.1 localhost\n10.99.0.1 node1\n10.99.0.2 node2\n' >hosts
  mount --bind hosts /etc/hosts
  mkdir -p session
  export TMPDIR=$PWD/session  # Open MPI's own files, which carry the host's name and a user's number
  ip link add veth1 type veth peer name veth2 netns "$node2"
  ip link set lo up
  ip addr add 10.99.0.1/24 dev veth1
  ip link set veth1 up
  nsenter -t "$node2" --net -- sh -c \
    'ip link set lo up && ip addr add 10.99.0.2/24 dev veth2 && ip link set veth2 up'
  fail_when_told &
  exec "$@"
}

fail_when_told() {
  until [ -s fail ]; do sleep 0.05; done
  if [ "$(cat fail)" = link ]; then
    ip link set veth1 down
    return
  fi
  local other
  other=$(readlink "/proc/$TANDEM_NODE2/ns/net")
  for process in /proc/[0-9]*; do
    if [ "$(readlink "$process/ns/net" || true)" = "$other" ]; then
      kill -KILL "${process#/proc/}"
    fi
  done
}

case "${1:-}" in
  run)
    shift
    command -v ip >/dev/null || { echo "two_hosts.sh: no ip here; install iproute2" >&2; exit 1; }
    as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(--user --map-root-user)
    namespaces=(unshare "${as_root[@]}" --mount --net --uts --pid --fork --kill-child --mount-proc)
    "${namespaces[@]}" true || exit 77
    exec "${namespaces[@]}" -- "$0" inside "$@"
    ;;
  inside)
    shift
    inside "$@"
    ;;
  agent)
    shift 2
    exec nsenter -t "$TANDEM_NODE2" --net --uts -- sh -c "$*"
    ;;
esac
