-- MIMIC-III: MetaVision rows have a beginning and an end; CareVue rows say what the rate was, or how
-- much had gone in, at a moment.
--
-- CareVue: a rate holds until the drug is charted again or stopped, at most getvariable('hold')
-- hours. Where several rates are charted at one moment the highest counts; a mark 'Stopped' or
-- 'D/C''d' means 0 from then on. An amount of fluid counts at the moment it was charted.
CREATE TABLE weights AS
SELECT stay_id, arg_min(value, (charttime, rank, value)) AS weight
FROM charted WHERE concept = 'weight' GROUP BY stay_id;

CREATE TABLE infusions AS
WITH moments AS (
    SELECT e.stay_id, e.itemid, i.concept, e.charttime,
           CASE WHEN bool_or(e.stopped IN ('Stopped', 'D/C''d')) THEN 0 ELSE max(e.rate) END AS rate,
           max(e.rateuom) AS unit
    FROM inputevents_cv AS e
    JOIN (SELECT * FROM items WHERE source = 'input' AND concept <> 'fluid') AS i USING (itemid)
    WHERE e.itemid IN (SELECT itemid FROM items WHERE source = 'input')
      AND e.stay_id IN (SELECT stay_id FROM cohort)
      AND (e.rate IS NOT NULL OR e.stopped IN ('Stopped', 'D/C''d'))
    GROUP BY ALL
)
SELECT m.stay_id, m.concept, m.charttime AS begins,
       least(coalesce(lead(m.charttime) OVER item, 'infinity'),
             m.charttime + to_hours(getvariable('hold'))) AS ends,
       m.rate, m.unit, coalesce(w.weight, getvariable('usual_weight')) AS weight
FROM moments AS m
LEFT JOIN weights AS w USING (stay_id)
WINDOW item AS (PARTITION BY m.stay_id, m.itemid ORDER BY m.charttime)
UNION ALL
SELECT e.stay_id, i.concept, e.starttime, e.endtime, e.rate, e.rateuom,
       CASE WHEN e.patientweight > 0 THEN e.patientweight ELSE getvariable('usual_weight') END
FROM inputevents_mv AS e
JOIN (SELECT * FROM items WHERE source = 'input' AND concept <> 'fluid') AS i USING (itemid)
WHERE e.itemid IN (SELECT itemid FROM items WHERE source = 'input')
  AND e.stay_id IN (SELECT stay_id FROM cohort)
  AND coalesce(e.statusdescription, '') <> 'Rewritten';

CREATE TABLE fluids AS
SELECT e.stay_id, e.charttime AS begins, e.charttime AS ends, e.amount, e.amountuom AS unit
FROM inputevents_cv AS e
JOIN (SELECT * FROM items WHERE source = 'input' AND concept = 'fluid') AS i USING (itemid)
WHERE e.itemid IN (SELECT itemid FROM items WHERE source = 'input')
  AND e.stay_id IN (SELECT stay_id FROM cohort)
UNION ALL
SELECT e.stay_id, e.starttime, e.endtime, e.amount, e.amountuom
FROM inputevents_mv AS e
JOIN (SELECT * FROM items WHERE source = 'input' AND concept = 'fluid') AS i USING (itemid)
WHERE e.itemid IN (SELECT itemid FROM items WHERE source = 'input')
  AND e.stay_id IN (SELECT stay_id FROM cohort)
  AND coalesce(e.statusdescription, '') <> 'Rewritten';
