"""What makes a step slow, a rule for each finding: `registry` names them all."""
