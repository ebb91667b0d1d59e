-- One row a decision: its state (`state_of_hour`, made by the builder of dprl.logs.events from `hourly`
-- and the features of the study: only what was charted, or given, before intime + h hours), and what
-- happened then: the treatment given in [h, h+1), and the mean pressure and urine of hour h+1.
--
-- What was never charted stays NULL (it is filled with medians of the training split, later). The
-- last whole hour has no hour after it: no decision.
CREATE TABLE decisions AS
SELECT s.stay_id, c.subject_id, s.hour,
       s.* EXCLUDE (stay_id, hour, gcs_eye, gcs_verbal, gcs_motor)
           REPLACE (CAST(fio2_ever AS INTEGER) AS fio2_ever,
                    CAST(lactate_ever AS INTEGER) AS lactate_ever,
                    CAST(alt_ever AS INTEGER) AS alt_ever,
                    CAST(ast_ever AS INTEGER) AS ast_ever,
                    CAST(creatinine_ever AS INTEGER) AS creatinine_ever,
                    CAST(po2_ever AS INTEGER) AS po2_ever,
                    CAST(urine_since AS INTEGER) AS urine_since,
                    CAST(gcs_since AS INTEGER) AS gcs_since),
       s.gcs_eye + s.gcs_verbal + s.gcs_motor AS gcs,
       coalesce(v.value, 0) AS vasopressor_dose, coalesce(b.value, 0) AS bolus_ml,
       m.value AS next_map, u.value AS next_urine,
       CASE WHEN c.n_hours >= getvariable('horizon') THEN 'cut' ELSE 'terminal' END AS ended
FROM state_of_hour AS s
JOIN cohort AS c USING (stay_id)
LEFT JOIN (SELECT * FROM hourly WHERE concept = 'vasopressor_dose') AS v USING (stay_id, hour)
LEFT JOIN (SELECT * FROM hourly WHERE concept = 'bolus_ml') AS b USING (stay_id, hour)
LEFT JOIN (SELECT * FROM hourly WHERE concept = 'urine') AS u
    ON s.stay_id = u.stay_id AND s.hour + 1 = u.hour
ASOF LEFT JOIN (SELECT * FROM hourly WHERE concept = 'map') AS m
    ON s.stay_id = m.stay_id AND s.hour + 1 >= m.hour;
