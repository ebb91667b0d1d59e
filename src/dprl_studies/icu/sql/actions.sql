-- The 4 x 4 treatment of each hour, and of the hour before as indicators.
--
-- Level 0 is nothing; the others lie between edges, the upper one included. The edges are
-- getvariable('bolus_edges') mL and getvariable('vasopressor_edges') mcg/kg.
CREATE MACRO level_of(dose, edges) AS CAST(CASE WHEN dose <= 0 THEN 0 WHEN dose <= edges[1] THEN 1
    WHEN dose <= edges[2] THEN 2 ELSE 3 END AS INTEGER);

CREATE VIEW acted AS
SELECT *,
       level_of(bolus_ml, getvariable('bolus_edges')) AS bolus,
       level_of(vasopressor_dose, getvariable('vasopressor_edges')) AS vasopressor,
       level_of(last_bolus_ml, getvariable('bolus_edges')) AS last_bolus,
       level_of(last_vasopressor_dose, getvariable('vasopressor_edges')) AS last_vasopressor
FROM decisions;
