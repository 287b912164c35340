// Writes the weights of a ResNet-18 that has learnt nothing: untrained <file>
#include <sinter/nn/nn.h>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  sinter::manual_seed(1);
  sinter::nn::write_safetensors(argv[1], sinter::nn::resnet18().state());
}
