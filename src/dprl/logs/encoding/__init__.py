"""How the columns of a state and an action become what learners take."""
