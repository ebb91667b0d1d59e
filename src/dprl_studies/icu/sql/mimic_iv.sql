-- MIMIC-IV keeps everything that was infused in inputevents, with a beginning and an end.
CREATE TABLE infusions AS
SELECT e.stay_id, i.concept, e.starttime AS begins, e.endtime AS ends, e.rate, e.rateuom AS unit,
       CASE WHEN e.patientweight > 0 THEN e.patientweight ELSE getvariable('usual_weight') END AS weight
FROM inputevents AS e
JOIN (SELECT * FROM items WHERE source = 'input' AND concept <> 'fluid') AS i USING (itemid)
WHERE e.itemid IN (SELECT itemid FROM items WHERE source = 'input')
  AND e.stay_id IN (SELECT stay_id FROM cohort)
  AND coalesce(e.statusdescription, '') <> 'Rewritten';

CREATE TABLE fluids AS
SELECT e.stay_id, e.starttime AS begins, e.endtime AS ends, e.amount, e.amountuom AS unit
FROM inputevents AS e
JOIN (SELECT * FROM items WHERE source = 'input' AND concept = 'fluid') AS i USING (itemid)
WHERE e.itemid IN (SELECT itemid FROM items WHERE source = 'input')
  AND e.stay_id IN (SELECT stay_id FROM cohort)
  AND coalesce(e.statusdescription, '') <> 'Rewritten';
