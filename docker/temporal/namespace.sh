#!/bin/sh
# Makes the namespace that the workers use; closed sessions can be looked at for 30 days.
set -eu

temporal operator namespace describe --namespace "$PERDURE_TEMPORAL_NAMESPACE" >/dev/null 2>&1 ||
  temporal operator namespace create --namespace "$PERDURE_TEMPORAL_NAMESPACE" --retention 30d
