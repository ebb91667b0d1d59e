-- What was charted and given in the stays of the cohort, as events: stay_id, t (microseconds), code,
-- rank, value. The builder of dprl.logs.events makes the states of them: of values at one moment the
-- lowest rank counts (the invasive line before the cuff), and of equals the lowest value.
--
-- Three codes are numbers of a whole hour, and stand at its beginning: FiO2, which comes from the chart
-- and from blood gases (the chart's of the same hour wins), urine, and doses of vasopressors.
CREATE TABLE events AS
WITH hourly AS (
    SELECT stay_id, hour, 'fio2' AS code, arg_max(value, (chart, charttime, -rank, -value)) AS value
    FROM (
        SELECT stay_id, hour, charttime, rank, value, true AS chart FROM charted WHERE concept = 'fio2'
        UNION ALL
        SELECT stay_id, hour, charttime, rank, value, false FROM labs WHERE concept = 'fio2'
    )
    GROUP BY stay_id, hour
    UNION ALL SELECT stay_id, hour, 'urine', value FROM urine
    UNION ALL SELECT stay_id, hour, 'vasopressor', dose FROM vasopressors
),
moments AS (
    SELECT stay_id, charttime, concept AS code, rank, value FROM charted
    WHERE concept IN ('map', 'sbp', 'dbp', 'gcs_eye', 'gcs_verbal', 'gcs_motor')
    UNION ALL SELECT stay_id, charttime, concept, rank, value FROM labs WHERE concept <> 'fio2'
    UNION ALL SELECT stay_id, begins, 'bolus', 0, CAST(ml AS DOUBLE) FROM boluses
)
SELECT stay_id, epoch_us(m.charttime) AS t, m.code, m.rank, m.value
FROM moments AS m JOIN cohort USING (stay_id)
UNION ALL
SELECT stay_id, epoch_us(c.intime) + h.hour * 3600000000, h.code, 0, h.value
FROM hourly AS h JOIN cohort AS c USING (stay_id);
