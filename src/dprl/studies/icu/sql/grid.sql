-- What was charted and given in each hour of each stay, as events: stay_id, hour, concept, value.
--
-- FiO2 comes from the chart and from blood gases; the chart's of the same hour wins. Doses are of
-- hours from 0 on; an hour without one has no row.
CREATE TABLE hourly AS
WITH oxygen AS (
    SELECT stay_id, hour, coalesce(v.value, l.value) AS value
    FROM (SELECT * FROM vitals WHERE concept = 'fio2') AS v
    FULL JOIN (SELECT * FROM labs WHERE concept = 'fio2') AS l USING (stay_id, hour)
)
SELECT stay_id, hour, concept, value FROM vitals WHERE concept <> 'fio2'
UNION ALL SELECT stay_id, hour, concept, value FROM gcs
UNION ALL SELECT stay_id, hour, concept, value FROM labs WHERE concept <> 'fio2'
UNION ALL SELECT stay_id, hour, concept, value FROM urine
UNION ALL SELECT stay_id, hour, 'fio2', value FROM oxygen
UNION ALL SELECT stay_id, hour, 'vasopressor_dose', dose FROM vasopressors WHERE hour >= 0
UNION ALL SELECT stay_id, hour, 'bolus_ml', ml FROM boluses WHERE hour >= 0;
