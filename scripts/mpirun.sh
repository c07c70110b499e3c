#!/usr/bin/env bash
# mpirun.sh N PROGRAM [ARG...]: mpirun with the settings that make N ranks work on any machine: as
# root, with more ranks than cores, unbound, and without busy waiting when ranks exceed cores.
set -euo pipefail
ranks=$1; shift
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
if [ "$ranks" -gt "$(nproc)" ]; then export OMPI_MCA_mpi_yield_when_idle=1; fi
exec mpirun -np "$ranks" "$@"
