#!/bin/bash
# Runs the commands of docs/scale.md with three replicas behind HAProxy, as workers of a NATS JetStream, as ranks of mpirun and
# on a Slurm of one node, in networks of their own; and holds the simulator's predictions to what replicas do.
# A user who is not root has no Slurm and no simulation, and where user namespaces are not allowed the page's ports must be
# free.
#   tools/cluster.sh [TEST…]     for example Replicas.test_kill, or Server.test_a_rank_is_killed
# DOPPLER_TEST_PROMPTS=100000 tools/cluster.sh JetStream.test_kill_workers_and_the_server: as many requests.
set -e -o pipefail
cd "$(dirname "$0")/.."
. tools/steps.sh
log=$PWD/build/build.log
tools/setup.sh run
tools/setup.sh cluster
export PATH=$PATH:/usr/sbin:/sbin
step "Configuring" cmake -S . -B build -G Ninja
build_step "Building Doppler" cmake --build build --target doppler
# 10.255.255.1 stands for the addresses of an ordinary machine: without one, names are not resolved.
network='ip link set lo up && ip address add 10.255.255.1/32 dev lo && exec "$@"'
alone=(unshare --net bash -c "$network" bash)
if [ "$(id -u)" -ne 0 ]; then alone=(unshare --user --map-root-user --net bash -c "$network" bash); fi
if ! "${alone[@]}" true 2>/dev/null; then alone=(); fi
run() { # run CLASSES FILE TEST…: the file's tests, where none are named or one of these classes is
  classes=$1 file=$2
  shift 2
  if [ $# -eq 0 ] || [[ $1 =~ ^($classes)(\.|$) ]]; then
    DOPPLER_TEST_RANKS=1 "${alone[@]}" python3 "tests/cluster/$file" build/doppler "$@"
  fi
}
run 'Replicas' replicas_test.py "$@"
run 'JetStream|Page' jetstream_test.py "$@"
run 'Simulation' simulation_test.py "$@"
run 'Text|Bench|Refusals|Server' ranks_test.py "$@"
if [ $# -gt 0 ]; then
  exit
elif [ "$(id -u)" -eq 0 ] && [ ${#alone[@]} -gt 0 ]; then
  "${alone[@]}" python3 tests/cluster/slurm_test.py build/doppler
else
  python3 tests/cluster/slurm_test.py build/doppler Systemd
  echo "skipped: Slurm needs root and a network of its own"
fi
