-- How often each page was looked at, in windows of ten minutes. Computed anew in every update.
CREATE MATERIALIZED VIEW page_views
COMMENT 'Views of each page in windows of ten minutes'
AS SELECT
  window.start AS began_at,
  page,
  count(*) AS views,
  count(DISTINCT user) AS visitors,
  CAST(avg(stay_ms) AS BIGINT) AS mean_stay_ms
FROM clicks
GROUP BY window(at, '10 minutes'), page;
