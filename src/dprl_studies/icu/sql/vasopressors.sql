-- Vasopressor given in each hour, norepinephrine-equivalent mcg/kg: rate x minutes of overlap, added
-- over all infusions that run.
--
-- `infusions` (made by the layout's own file) has stay_id, concept, begins, ends, rate, unit, weight.
-- Rates become mcg/kg/min (vasopressin: units/hour) by their unit; without a unit the usual one is
-- meant. Equivalents: norepinephrine 1, epinephrine 1, phenylephrine .45, dopamine .01, vasopressin
-- 5/60 a unit/hour. A rate above getvariable('rate_cap') mcg/kg/min of equivalents is an outlier and
-- counts as that. What runs before the stay or after its last whole hour is not counted.
CREATE TABLE pressor_rates AS
SELECT *,
       CASE
           WHEN concept = 'vasopressin' THEN CASE lower(coalesce(unit, 'units/hour'))
               WHEN 'units/hour' THEN 1.0 WHEN 'units/hr' THEN 1.0 WHEN 'uhr' THEN 1.0
               WHEN 'units/min' THEN 60.0 WHEN 'umin' THEN 60.0 END
           ELSE CASE lower(coalesce(unit, 'mcg/kg/min'))
               WHEN 'mcg/kg/min' THEN 1.0 WHEN 'mcgkgmin' THEN 1.0
               WHEN 'mcg/min' THEN 1.0 / weight WHEN 'mcgmin' THEN 1.0 / weight
               WHEN 'mcg/hour' THEN 1.0 / 60 / weight WHEN 'mcg/kg/hour' THEN 1.0 / 60
               WHEN 'mg/min' THEN 1000.0 / weight WHEN 'mg/kg/min' THEN 1000.0
               WHEN 'mg/hour' THEN 1000.0 / 60 / weight END
       END AS unit_factor,
       CASE concept WHEN 'norepinephrine' THEN 1.0 WHEN 'epinephrine' THEN 1.0
                    WHEN 'phenylephrine' THEN 0.45 WHEN 'dopamine' THEN 0.01
                    WHEN 'vasopressin' THEN 5.0 / 60 END AS equivalent
FROM infusions;

CREATE TABLE vasopressors AS
WITH rated AS (
    SELECT s.stay_id, s.intime, s.n_hours, p.begins, p.ends,
           least(getvariable('rate_cap'), p.rate * p.unit_factor * p.equivalent) AS rate
    FROM pressor_rates AS p
    JOIN cohort AS s USING (stay_id)
    WHERE p.rate > 0 AND p.unit_factor IS NOT NULL AND p.ends > p.begins
),
parts AS (
    SELECT *, unnest(range(greatest(0, hour_of(begins, intime)),
                           least(n_hours, hour_of(ends, intime) + 1))) AS hour
    FROM rated
),
shared AS (
    SELECT stay_id, hour, rate,
           least(epoch_us(ends), epoch_us(intime) + (hour + 1) * 3600000000)
           - greatest(epoch_us(begins), epoch_us(intime) + hour * 3600000000) AS us
    FROM parts
)
SELECT stay_id, CAST(hour AS INTEGER) AS hour,
       CAST(sum(CAST(rate * us / 6e7 AS DECIMAL(18, 9))) AS DOUBLE) AS dose
FROM shared
WHERE us > 0
GROUP BY ALL;
