-- One row a decision: its state (`state_of_hour`, made by the builder of dprl.logs.events from `events`
-- and the features of the study: only what was charted, or given, before intime + h hours), and what
-- happened then: the treatment given in [h, h+1), and the mean pressure and urine of hour h+1.
--
-- What happened then is what later states know: that of hour h+1 what was given in the hour before it,
-- that of hour h+2 the last mean pressure and the urine of the hour before it. So the rows are read once.
--
-- What was never charted stays NULL (it is filled with medians of the training split, later). The
-- last whole hour has no hour after it: no decision.
CREATE TABLE decisions AS
SELECT s.stay_id, c.subject_id, s.hour,
       s.* EXCLUDE (stay_id, hour, ended, gcs_eye, gcs_verbal, gcs_motor, urine_in_hour)
           REPLACE (CAST(fio2_ever AS INTEGER) AS fio2_ever,
                    CAST(lactate_ever AS INTEGER) AS lactate_ever,
                    CAST(alt_ever AS INTEGER) AS alt_ever,
                    CAST(ast_ever AS INTEGER) AS ast_ever,
                    CAST(creatinine_ever AS INTEGER) AS creatinine_ever,
                    CAST(po2_ever AS INTEGER) AS po2_ever,
                    CAST(urine_since AS INTEGER) AS urine_since,
                    CAST(gcs_since AS INTEGER) AS gcs_since),
       s.gcs_eye + s.gcs_verbal + s.gcs_motor AS gcs,
       lead(s.last_vasopressor_dose) OVER stay AS vasopressor_dose,
       lead(s.last_bolus_ml) OVER stay AS bolus_ml,
       lead(s.map, 2) OVER stay AS next_map,
       lead(s.urine_in_hour, 2) OVER stay AS next_urine,
       s.ended
FROM state_of_hour AS s
JOIN cohort AS c USING (stay_id)
WINDOW stay AS (PARTITION BY s.stay_id ORDER BY s.hour)
QUALIFY s.hour <= c.n_hours - 2;
