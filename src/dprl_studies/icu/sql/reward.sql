-- What the hour after the decision is worth, in [0, 1].
--
-- 1 + the line through (40, -1) (55, -.15) (60, -.05) (65, 0) at that hour's mean pressure, flat
-- outside; and 1 where the pressure is at least 55 and at least 30 mL of urine were charted in it.
-- The pressure is the last one charted before the end of that hour; where there was none yet it is
-- getvariable('usual_map'), the training median (NULL at first: then the reward is NULL too).
CREATE VIEW rewarded AS
SELECT *,
       CASE WHEN m IS NULL THEN NULL
            WHEN m >= 55 AND coalesce(next_urine, 0) >= 30 THEN 1.0
            WHEN m <= 40 THEN 0.0
            WHEN m <= 55 THEN 1 + (-1 + (m - 40) / 15 * 0.85)
            WHEN m <= 60 THEN 1 + (-0.15 + (m - 55) / 5 * 0.10)
            WHEN m <= 65 THEN 1 + (-0.05 + (m - 60) / 5 * 0.05)
            ELSE 1.0 END AS reward
FROM (SELECT *, coalesce(next_map, getvariable('usual_map')) AS m FROM acted);
