-- Clicks as a stream that knows how late they may come: sessions that ended five minutes before the newest click are
-- over, and a click that comes still later is left out of them.
CREATE TEMPORARY VIEW timed_clicks
AS SELECT * FROM STREAM clicks WATERMARK at DELAY OF INTERVAL 5 MINUTES;
