-- The three parts of the Glasgow coma scale, each the last of its hour; their sum is made where all
-- three are known (features.sql), for they are not always charted together.
CREATE TABLE gcs AS
SELECT stay_id, hour, concept, arg_max(value, (charttime, -rank, -value)) AS value
FROM charted
JOIN cohort USING (stay_id)
WHERE concept IN ('gcs_eye', 'gcs_verbal', 'gcs_motor')
GROUP BY ALL;
