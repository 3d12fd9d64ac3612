-- Requests that were proxied are kept beside those to the API.

-- The route's name; empty for the API's own.
ALTER TABLE skep_access ADD COLUMN route TEXT NOT NULL DEFAULT '';
ALTER TABLE skep_access ADD COLUMN host TEXT NOT NULL DEFAULT '';
-- Who answered in the end; empty if nobody was asked.
ALTER TABLE skep_access ADD COLUMN upstream TEXT NOT NULL DEFAULT '';
ALTER TABLE skep_access ADD COLUMN bytes_in BIGINT NOT NULL DEFAULT 0;
ALTER TABLE skep_access ADD COLUMN bytes_out BIGINT NOT NULL DEFAULT 0;
ALTER TABLE skep_access ADD COLUMN tries BIGINT NOT NULL DEFAULT 0;
ALTER TABLE skep_access ADD COLUMN protocol TEXT NOT NULL DEFAULT '';
-- A short word such as upstream-timeout; empty if all went well.
ALTER TABLE skep_access ADD COLUMN error TEXT NOT NULL DEFAULT '';

-- Ids grow with time, so that a time is found by bisection over them.
DROP INDEX skep_access_by_time;
