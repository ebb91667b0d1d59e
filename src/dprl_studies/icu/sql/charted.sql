-- What was charted that any concept wants: one pass over chartevents.
--
-- Kept: an item we know, a value in its valid range, from getvariable('look_back') hours before the
-- stay to the horizon. A FiO2 of at most 1 is a fraction and becomes per cent before its range is
-- looked at.
CREATE TABLE charted AS
SELECT s.stay_id, i.concept, i.rank, c.charttime,
       hour_of(c.charttime, s.intime) AS hour,
       CASE WHEN i.concept = 'fio2' AND c.valuenum <= 1 THEN c.valuenum * 100
            ELSE c.valuenum END AS value
FROM chartevents AS c
JOIN (SELECT * FROM items WHERE source = 'chart') AS i USING (itemid)
JOIN stays AS s USING (stay_id)
WHERE c.itemid IN (SELECT itemid FROM items WHERE source = 'chart')
  AND value BETWEEN i.low AND i.high
  AND hour >= -getvariable('look_back') AND hour < getvariable('horizon');
