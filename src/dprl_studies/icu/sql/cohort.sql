-- Stays with at least getvariable('low_n') charted mean pressures below getvariable('low_map') mmHg
-- in [intime, intime + horizon), and at least two whole hours: a decision needs the hour after it.
CREATE TABLE pressures AS
SELECT stay_id, count(*) AS charted,
       count(*) FILTER (WHERE value < getvariable('low_map')) AS low
FROM charted
WHERE concept = 'map' AND hour >= 0
GROUP BY stay_id;

CREATE TABLE cohort AS
SELECT s.*
FROM stays AS s
JOIN pressures AS p USING (stay_id)
WHERE p.low >= getvariable('low_n') AND s.n_hours >= 2;
