-- Fluid boluses, mL: crystalloids, colloids and blood products of at least getvariable('bolus_ml') mL
-- given within an hour; they count when they are begun.
--
-- `fluids` (made by the layout's own file) has stay_id, begins, ends, amount, unit. Amounts are
-- rounded to a tenth of a mL first: 500.00002 is 500.
CREATE TABLE boluses AS
SELECT s.stay_id, f.begins, hour_of(f.begins, s.intime) AS hour,
       CAST(f.amount * CASE lower(coalesce(f.unit, 'ml')) WHEN 'ml' THEN 1 WHEN 'l' THEN 1000 END
            AS DECIMAL(18, 1)) AS ml
FROM fluids AS f
JOIN cohort AS s USING (stay_id)
WHERE hour >= 0 AND hour < s.n_hours
  AND f.ends >= f.begins AND f.ends <= f.begins + INTERVAL 1 HOUR
  AND ml >= getvariable('bolus_ml');
