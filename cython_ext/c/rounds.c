/* Rounds of mean field, for one kind of processor. */
#include "belief.h"
#include "lateral.h"

void PGM_UNIT(rounds)(pgm_routines *table)
{
    table->start = pgm_start_part;
    table->settle = pgm_settle_part;
    table->forward = pgm_forward_part;
    table->learn = pgm_learn_part;
    table->forward_tables = pgm_forward_tables_part;
    table->value = pgm_value_part;
    table->count_tables = pgm_count_tables_part;
    table->lateral = pgm_lateral_part;
}
