#include "train/train_job.h"

int main(int argc, char** argv) { return tandem::launch(tandem::train_program(), argc, argv); }
