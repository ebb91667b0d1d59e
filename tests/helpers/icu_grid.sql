-- Each concept's last value in each hour in which it was charted.
--
-- Of values charted at the same moment the invasive line (rank 1) wins over the cuff (rank 2), and of
-- equals the lowest: nothing depends on the order of rows.
CREATE TABLE vitals AS
SELECT stay_id, hour, concept, arg_max(value, (charttime, -rank, -value)) AS value
FROM charted
JOIN cohort USING (stay_id)
WHERE concept IN ('map', 'sbp', 'dbp', 'fio2')
GROUP BY ALL;
-- The three parts of the Glasgow coma scale, each the last of its hour; their sum is made where all
-- three are known (features.sql), for they are not always charted together.
CREATE TABLE gcs AS
SELECT stay_id, hour, concept, arg_max(value, (charttime, -rank, -value)) AS value
FROM charted
JOIN cohort USING (stay_id)
WHERE concept IN ('gcs_eye', 'gcs_verbal', 'gcs_motor')
GROUP BY ALL;
-- The last value of each laboratory test in each hour.
CREATE TABLE labs_of_hour AS
SELECT stay_id, hour, concept, arg_max(value, (charttime, -rank, -value)) AS value
FROM labs
GROUP BY ALL;
CREATE TABLE boluses_of_hour AS
SELECT stay_id, hour, CAST(sum(ml) AS DOUBLE) AS ml FROM boluses GROUP BY ALL;
-- One row a stay and hour, from the look-back to the last whole hour: what was charted in that hour
-- (NULL: nothing) and what was given in it.
CREATE TABLE grid AS
WITH hours AS (
    SELECT stay_id, subject_id, n_hours, died,
           CAST(unnest(range(-getvariable('look_back'), n_hours)) AS INTEGER) AS hour
    FROM cohort
),
measured AS (
    SELECT * FROM vitals UNION ALL BY NAME SELECT * FROM gcs
    UNION ALL BY NAME SELECT * FROM labs_of_hour UNION ALL BY NAME SELECT * FROM urine
),
-- FiO2 comes from the chart and from blood gases; the chart's of the same hour wins.
wide AS (
    SELECT stay_id, hour,
           max(value) FILTER (WHERE concept = 'map') AS map,
           max(value) FILTER (WHERE concept = 'sbp') AS sbp,
           max(value) FILTER (WHERE concept = 'dbp') AS dbp,
           max(value) FILTER (WHERE concept = 'gcs_eye') AS gcs_eye,
           max(value) FILTER (WHERE concept = 'gcs_verbal') AS gcs_verbal,
           max(value) FILTER (WHERE concept = 'gcs_motor') AS gcs_motor,
           max(value) FILTER (WHERE concept = 'urine') AS urine,
           max(value) FILTER (WHERE concept = 'lactate') AS lactate,
           max(value) FILTER (WHERE concept = 'creatinine') AS creatinine,
           max(value) FILTER (WHERE concept = 'alt') AS alt,
           max(value) FILTER (WHERE concept = 'ast') AS ast,
           max(value) FILTER (WHERE concept = 'po2') AS po2
    FROM measured
    GROUP BY ALL
),
oxygen AS (
    SELECT stay_id, hour, coalesce(v.value, l.value) AS fio2
    FROM (SELECT * FROM vitals WHERE concept = 'fio2') AS v
    FULL JOIN (SELECT * FROM labs_of_hour WHERE concept = 'fio2') AS l USING (stay_id, hour)
)
SELECT h.*, w.* EXCLUDE (stay_id, hour), o.fio2,
       CASE WHEN h.hour >= 0 THEN coalesce(v.dose, 0) END AS vasopressor_dose,
       CASE WHEN h.hour >= 0 THEN coalesce(b.ml, 0) END AS bolus_ml
FROM hours AS h
LEFT JOIN wide AS w USING (stay_id, hour)
LEFT JOIN oxygen AS o USING (stay_id, hour)
LEFT JOIN vasopressors AS v USING (stay_id, hour)
LEFT JOIN boluses_of_hour AS b USING (stay_id, hour);
