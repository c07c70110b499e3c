#!/usr/bin/env bash
# mpirun.sh N PROGRAM [ARG...]: mpirun with the settings that make N ranks work on any machine: as
# root, with more ranks than cores, unbound, and without busy waiting when ranks exceed cores.
set -euo pipefail
if [ $# -lt 2 ]; then
  echo "usage: mpirun.sh N PROGRAM [ARG...]" >&2
  exit 2
fi
ranks=$1; shift
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Copies through shared memory are up to twice as fast as the kernel's single copy at 1 to 8 MiB.
export OMPI_MCA_btl_vader_single_copy_mechanism=${OMPI_MCA_btl_vader_single_copy_mechanism:-none}
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
if [ "$ranks" -gt "$(nproc)" ]; then export OMPI_MCA_mpi_yield_when_idle=1; fi
exec mpirun -np "$ranks" "$@"
