#!/usr/bin/env bash
# A ladder on Slurm: one task of the array a case, each on a GPU of its own, all into shared folders.
# What is compared at a case takes turns on one GPU, so a case is never split; records and the
# history's files have names of their own, so tasks never wait for each other.
#
#   PROFKIT_CASES="A B C D" sbatch --array=0-3 tools/slurm_array.sh
#   profkit history --history /shared/history
#
# The same from Python, with submitit, whose AutoExecutor takes this machine where there is no Slurm:
#
#   import submitit
#   executor = submitit.AutoExecutor("/shared/logs")
#   executor.update_parameters(gpus_per_node=1, timeout_min=60)
#   words = ["profkit", "profile", "--all", "--artifacts", "/shared/artifacts"]
#   measure = submitit.helpers.CommandFunction(words)
#   jobs = [executor.submit(measure, "--case", case) for case in ("A", "B", "C", "D")]
#   results = [job.result() for job in jobs]
#
#SBATCH --job-name=profkit
#SBATCH --gpus=1
#SBATCH --time=01:00:00
set -eu
read -ra cases <<<"${PROFKIT_CASES:?the cases of the problem, such as: A B C D}"
case=${cases[${SLURM_ARRAY_TASK_ID:?start it with sbatch --array=0-$((${#cases[@]} - 1))}]}
artifacts=${PROFKIT_ARTIFACTS:-artifacts}
profkit profile --all --case "$case" --artifacts "$artifacts" --quiet
profkit history --add --artifacts "$artifacts" --history "${PROFKIT_HISTORY:-history}" --quiet
