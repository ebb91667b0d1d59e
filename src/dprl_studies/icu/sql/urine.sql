-- Urine charted in each hour, mL: all routes added, irrigation fluid that went in taken off, never
-- below 0. Sums are of decimals: exact, whatever the order.
CREATE TABLE urine AS
SELECT stay_id, hour, 'urine' AS concept,
       greatest(0, CAST(sum(CASE WHEN concept = 'irrigant' THEN -ml ELSE ml END) AS DOUBLE)) AS value
FROM (
    SELECT s.stay_id, hour_of(o.charttime, s.intime) AS hour, i.concept,
           CAST(o.value AS DECIMAL(18, 3)) AS ml
    FROM outputevents AS o
    JOIN (SELECT * FROM items WHERE source = 'output') AS i USING (itemid)
    JOIN cohort AS s USING (stay_id)
    WHERE o.itemid IN (SELECT itemid FROM items WHERE source = 'output')
      AND o.value BETWEEN i.low AND i.high
      AND hour >= -getvariable('look_back') AND hour < getvariable('horizon')
)
GROUP BY stay_id, hour;
