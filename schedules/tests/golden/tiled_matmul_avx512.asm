stage 0:
     0  push rbx
     1  push rbp
     2  push r12
     4  push r13
     6  push r14
     8  push r15
     a  add rsp, 0FFFFFFFFFFFFFFA0h
     e  mov [rsp+10h], rdx
    13  mov [rsp+18h], rcx
    18  mov rax, [rdi]
    1b  mov [rsp+38h], rax
    20  mov rax, [rdi+8]
    24  mov [rsp+40h], rax
    29  mov rax, [rdi+10h]
    2d  mov [rsp+48h], rax
    32  mov rax, [rdi+18h]
    36  mov [rsp+50h], rax
    3b  mov rax, [rdi+20h]
    3f  mov [rsp+58h], rax
    44  mov rax, [rsp+10h]
    49  mov rcx, 0
    50  cmp rax, rcx
    53  cmovl rax, rcx
    57  mov [rsp], rax
    5b  mov rax, [rsp+18h]
    60  mov rcx, 1
    67  cmp rax, rcx
    6a  cmovg rax, rcx
    6e  mov [rsp+8], rax
    73  jmp 0C0h
    78  mov rax, [rsp]
    7c  xor edx, edx
    7e  mov rcx, 1
    85  div rcx
    88  mov [rsp+20h], rdx
    8d  mov rdi, [rsp+40h]
    92  imul rax, [rsp+20h], 2Ch
    9b  add rdi, rax
    9e  mov rsi, [rsp+58h]
    a3  imul rax, [rsp+20h], 84h
    ac  add rsi, rax
    af  call 0E1h
    b4  mov rax, [rsp]
    b8  add rax, 1
    bc  mov [rsp], rax
    c0  mov rax, [rsp]
    c4  cmp rax, [rsp+8]
    c9  jl near 78h
    cf  add rsp, 60h
    d3  pop r15
    d5  pop r14
    d7  pop r13
    d9  pop r12
    db  pop rbp
    dc  pop rbx
    dd  vzeroupper
    e0  ret
    e1  mov eax, 7FFh
    e6  kmovw k1, eax
    ea  mov rdx, 3
    f1  vmovups zmm0{k1}{z}, [rdi]
    f7  vmovups [rsi]{k1}, zmm0
    fd  add rdi, 2Ch
   101  add rsi, 2Ch
   105  dec rdx
   108  jne near 0F1h
   10e  add rdi, 0FFFFFFFFFFFFFF7Ch
   115  add rsi, 0FFFFFFFFFFFFFF7Ch
   11c  ret
stage 1:
   11d  push rbx
   11e  push rbp
   11f  push r12
   121  push r13
   123  push r14
   125  push r15
   127  add rsp, 0FFFFFFFFFFFFFFA8h
   12b  mov [rsp+10h], rdx
   130  mov [rsp+18h], rcx
   135  mov rax, [rdi]
   138  mov [rsp+30h], rax
   13d  mov rax, [rdi+8]
   141  mov [rsp+38h], rax
   146  mov rax, [rdi+10h]
   14a  mov [rsp+40h], rax
   14f  mov rax, [rdi+18h]
   153  mov [rsp+48h], rax
   158  mov rax, [rdi+20h]
   15c  mov [rsp+50h], rax
   161  mov rax, [rsp+10h]
   166  mov rcx, 0
   16d  cmp rax, rcx
   170  cmovl rax, rcx
   174  mov [rsp], rax
   178  mov rax, [rsp+18h]
   17d  mov rcx, 1
   184  cmp rax, rcx
   187  cmovg rax, rcx
   18b  mov [rsp+8], rax
   190  jmp 21Ch
   195  mov rax, [rsp]
   199  xor edx, edx
   19b  mov rcx, 1
   1a2  div rcx
   1a5  mov [rsp+28h], rdx
   1aa  xor edx, edx
   1ac  mov rcx, 1
   1b3  div rcx
   1b6  mov [rsp+20h], rdx
   1bb  mov rdi, [rsp+30h]
   1c0  imul rax, [rsp+28h], 18h
   1c9  add rdi, rax
   1cc  mov rsi, [rsp+50h]
   1d1  imul rax, [rsp+20h], 84h
   1da  add rsi, rax
   1dd  mov rdx, [rsp+40h]
   1e2  imul rax, [rsp+20h], 2Ch
   1eb  add rdx, rax
   1ee  mov rcx, [rsp+48h]
   1f3  imul rax, [rsp+20h], 2Ch
   1fc  add rcx, rax
   1ff  imul rax, [rsp+28h], 58h
   208  add rcx, rax
   20b  call 23Dh
   210  mov rax, [rsp]
   214  add rax, 1
   218  mov [rsp], rax
   21c  mov rax, [rsp]
   220  cmp rax, [rsp+8]
   225  jl near 195h
   22b  add rsp, 58h
   22f  pop r15
   231  pop r14
   233  pop r13
   235  pop r12
   237  pop rbp
   238  pop rbx
   239  vzeroupper
   23c  ret
   23d  mov eax, 7FFh
   242  kmovw k1, eax
   246  vpxord zmm0, zmm0, zmm0
   24c  vpxord zmm1, zmm1, zmm1
   252  mov r8, 3
   259  vmovups zmm2{k1}{z}, [rsi]
   25f  vfmadd231ps zmm0, zmm2, [rdi]{1to16}
   265  vfmadd231ps zmm1, zmm2, [rdi+0Ch]{1to16}
   26c  prefetcht1 [rsi+84h]
   273  add rdi, 4
   277  add rsi, 2Ch
   27b  dec r8
   27e  jne near 259h
   284  add rdi, 0FFFFFFFFFFFFFFF4h
   288  add rsi, 0FFFFFFFFFFFFFF7Ch
   28f  vpxord zmm2, zmm2, zmm2
   295  vmovups zmm3{k1}{z}, [rdx]
   29b  vaddps zmm4, zmm0, zmm3
   2a1  vmaxps zmm4, zmm2, zmm4
   2a7  vmovups [rcx]{k1}, zmm4
   2ad  vaddps zmm3, zmm1, zmm3
   2b3  vmaxps zmm2, zmm2, zmm3
   2b9  vmovups [rcx+2Ch]{k1}, zmm2
   2c3  ret
