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
