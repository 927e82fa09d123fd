#!/bin/sh
# Brings Temporal's own databases to the schema of this server; run before every start of it.
# The password is in SQL_PASSWORD, where the tool looks for it.
set -eu

tool() {
  database=$1
  shift
  temporal-sql-tool --plugin postgres12 --ep "$POSTGRES_SEEDS" -p 5432 -u "$POSTGRES_USER" \
    --db "$database" "$@"
}

for kind in temporal visibility; do
  database=temporal
  [ "$kind" = temporal ] || database=temporal_visibility
  versions=/etc/temporal/schema/postgresql/v12/$kind/versioned
  # Where there is no schema yet there is nothing to bring up to date.
  if ! tool "$database" update-schema -d "$versions"; then
    tool "$database" setup-schema -v 0.0
    tool "$database" update-schema -d "$versions"
  fi
done
