SELECT to_regcollation(%(name)s) IS NOT NULL AS there
