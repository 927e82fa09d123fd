#!/bin/sh
# Run once, by the first start of the database: an owner and databases for Temporal and for us.
set -eu

psql --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" \
  --set temporal="$TEMPORAL_DB_PASSWORD" --set perdure="$PERDURE_DB_PASSWORD" <<'SQL'
CREATE ROLE temporal LOGIN PASSWORD :'temporal';
CREATE DATABASE temporal OWNER temporal;
CREATE DATABASE temporal_visibility OWNER temporal;
CREATE ROLE perdure LOGIN PASSWORD :'perdure';
CREATE DATABASE perdure OWNER perdure TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C.UTF-8';
\connect perdure
CREATE EXTENSION IF NOT EXISTS pg_trgm;
SQL
