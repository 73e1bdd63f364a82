#!/bin/sh
# Runs a program again whenever it ends, as an init system does, with growing delays while it keeps
# ending. The kernel kills the program when this script ends.
#
# usage: keep.sh PROGRAM [ARGUMENT]...
tenths=2
while :; do
    began=$(date +%s)
    setpriv --pdeathsig KILL -- "$@"
    echo "$1 ended with $?"
    [ $(($(date +%s) - began)) -lt 10 ] || tenths=2
    sleep "$((tenths / 10)).$((tenths % 10))"
    tenths=$((tenths * 2))
    [ "$tenths" -le 50 ] || tenths=50
done
