-- The last record of each user counts. Where it has no value (a tombstone), the user is gone.
CREATE MATERIALIZED VIEW users
COMMENT 'Who is registered now'
AS SELECT user, latest.name, latest.plan, latest.country
FROM (
  SELECT CAST(key AS STRING) AS user, max_by(value, offset) AS latest
  FROM users_topic
  GROUP BY key
)
WHERE latest IS NOT NULL;
