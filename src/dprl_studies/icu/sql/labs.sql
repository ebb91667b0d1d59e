-- Every laboratory test that any concept wants, by the time the specimen was taken: one pass over
-- labevents.
--
-- Tests carry no stay: they belong to every stay of the patient whose window they fall into.
CREATE TABLE labs AS
SELECT s.stay_id, i.concept, i.rank, l.charttime, hour_of(l.charttime, s.intime) AS hour,
       CASE WHEN i.concept = 'fio2' AND l.valuenum <= 1 THEN l.valuenum * 100
            ELSE l.valuenum END AS value
FROM labevents AS l
JOIN (SELECT * FROM items WHERE source = 'lab') AS i USING (itemid)
JOIN cohort AS s USING (subject_id)
WHERE l.itemid IN (SELECT itemid FROM items WHERE source = 'lab')
  AND value BETWEEN i.low AND i.high
  AND hour >= -getvariable('look_back') AND hour < getvariable('horizon');
