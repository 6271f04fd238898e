-- How long the device copied, how long it did other work, and how long both at once. Launches of
-- graphs are left out: their copies have no times of their own.
WITH
  work AS (
    SELECT
      ts,
      dur,
      name GLOB '*upload*' OR name GLOB '*download*' OR name GLOB '*copy*' AS copy
    FROM slice
    WHERE category = 'device' AND name NOT GLOB 'Device::*' AND name NOT GLOB 'Graph::*'
  ),
  edges AS (
    SELECT ts, copy AS copies, 1 - copy AS others FROM work
    UNION ALL
    SELECT ts + dur, -copy, copy - 1 FROM work
  ),
  stretches AS (
    SELECT
      sum(copies) OVER (ORDER BY ts) > 0 AS copying,
      sum(others) OVER (ORDER BY ts) > 0 AS working,
      lead(ts) OVER (ORDER BY ts) - ts AS ns
    FROM edges
  )
SELECT
  sum(ns * copying) / 1e6 AS copying_ms,
  sum(ns * working) / 1e6 AS working_ms,
  sum(ns * (copying AND working)) / 1e6 AS both_ms
FROM stretches;
