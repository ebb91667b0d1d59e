-- One row an ICU stay: when it began, when it ended, and how.
--
-- A stay ends when the patient leaves the unit, or dies there; hour h of it is
-- [intime + h hours, intime + (h+1) hours). Only whole hours count, at most getvariable('horizon').
CREATE MACRO hour_of(moment, origin) AS CAST(floor((epoch_us(moment) - epoch_us(origin)) / 3.6e9) AS INTEGER);

CREATE TABLE stays AS
WITH ends AS (
    SELECT i.stay_id, i.subject_id, i.intime, i.outtime, a.deathtime,
           coalesce(a.deathtime <= i.outtime AND a.deathtime >= i.intime, false) AS died
    FROM icustays AS i
    LEFT JOIN (SELECT hadm_id, min(deathtime) AS deathtime FROM admissions GROUP BY hadm_id) AS a
        USING (hadm_id)
)
SELECT stay_id, subject_id, intime, outtime, died,
       CASE WHEN died THEN deathtime ELSE outtime END AS finish,
       greatest(0, least(getvariable('horizon'), hour_of(outtime, intime))) AS hours_in_unit,
       greatest(0, least(getvariable('horizon'), hour_of(finish, intime))) AS n_hours
FROM ends
WHERE intime IS NOT NULL AND outtime IS NOT NULL;
