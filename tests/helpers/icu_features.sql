-- Another way to the same decisions: one row a stay and hour, and window functions over it.
-- The state at hour h: only what was charted, or given, before intime + h hours. Also what happened
-- then: the treatment given in [h, h+1), and the mean pressure and urine of hour h+1.
--
-- Values are the last ones carried forward; what was never charted stays NULL (it is filled with
-- medians of the training split, later). The last whole hour has no hour after it: no decision.
CREATE TABLE decisions AS
WITH carried_forward AS (
    SELECT stay_id, subject_id, hour, n_hours, died,
           last_value(fio2 IGNORE NULLS) OVER before AS fio2,
           last_value(lactate IGNORE NULLS) OVER before AS lactate,
           last_value(urine IGNORE NULLS) OVER before AS urine,
           last_value(map IGNORE NULLS) OVER before AS map,
           last_value(gcs_eye IGNORE NULLS) OVER before
               + last_value(gcs_verbal IGNORE NULLS) OVER before
               + last_value(gcs_motor IGNORE NULLS) OVER before AS gcs,
           last_value(alt IGNORE NULLS) OVER before AS alt,
           last_value(ast IGNORE NULLS) OVER before AS ast,
           last_value(sbp IGNORE NULLS) OVER before AS sbp,
           last_value(dbp IGNORE NULLS) OVER before AS dbp,
           last_value(creatinine IGNORE NULLS) OVER before AS creatinine,
           last_value(po2 IGNORE NULLS) OVER before AS po2,
           CAST(count(fio2) OVER before > 0 AS INTEGER) AS fio2_ever,
           CAST(count(lactate) OVER before > 0 AS INTEGER) AS lactate_ever,
           CAST(count(alt) OVER before > 0 AS INTEGER) AS alt_ever,
           CAST(count(ast) OVER before > 0 AS INTEGER) AS ast_ever,
           CAST(count(creatinine) OVER before > 0 AS INTEGER) AS creatinine_ever,
           CAST(count(po2) OVER before > 0 AS INTEGER) AS po2_ever,
           CAST(count(urine) OVER last > 0 AS INTEGER) AS urine_since,
           CAST(count(coalesce(gcs_eye, gcs_verbal, gcs_motor)) OVER last > 0 AS INTEGER) AS gcs_since,
           coalesce(sum(CAST(vasopressor_dose AS DECIMAL(18, 9))) OVER before, 0) AS total_vasopressor,
           coalesce(sum(CAST(bolus_ml AS DECIMAL(18, 1))) OVER before, 0) AS total_bolus,
           coalesce(sum(CAST(vasopressor_dose AS DECIMAL(18, 9))) OVER eight, 0) AS total_vasopressor_8h,
           coalesce(sum(CAST(bolus_ml AS DECIMAL(18, 1))) OVER eight, 0) AS total_bolus_8h,
           coalesce(lag(vasopressor_dose) OVER stay, 0) AS last_vasopressor_dose,
           coalesce(lag(bolus_ml) OVER stay, 0) AS last_bolus_ml,
           vasopressor_dose, bolus_ml,
           last_value(map IGNORE NULLS) OVER ahead AS next_map,
           lead(urine) OVER stay AS next_urine
    FROM grid
    WINDOW stay AS (PARTITION BY stay_id ORDER BY hour),
           before AS (PARTITION BY stay_id ORDER BY hour
                      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
           last AS (PARTITION BY stay_id ORDER BY hour ROWS BETWEEN 1 PRECEDING AND 1 PRECEDING),
           eight AS (PARTITION BY stay_id ORDER BY hour ROWS BETWEEN 8 PRECEDING AND 1 PRECEDING),
           ahead AS (PARTITION BY stay_id ORDER BY hour
                     ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING)
)
SELECT * EXCLUDE (n_hours, died)
         REPLACE (CAST(total_vasopressor AS DOUBLE) AS total_vasopressor,
                  CAST(total_bolus AS DOUBLE) AS total_bolus,
                  CAST(total_vasopressor_8h AS DOUBLE) AS total_vasopressor_8h,
                  CAST(total_bolus_8h AS DOUBLE) AS total_bolus_8h),
       CASE WHEN n_hours >= getvariable('horizon') THEN 'cut' ELSE 'terminal' END AS ended
FROM carried_forward
WHERE hour >= 0 AND hour <= n_hours - 2;
